# SPDX-License-Identifier: BSD-3-Clause
"""Run the commands of the rows of doc/papers.md, so that they are known to work and to agree.

    python benchmarks/papers/rows.py --data FOLDER --out FOLDER
    python benchmarks/papers/rows.py --data FOLDER --out FOLDER --only "pgsm|smc" --share 0.1

The commands are read from the page: a section names its script in "commands `pgsm/run.py
FIGURE`", and a row has the rest in its second column. `--only` is a regular expression for the
commands to run. `--share` multiplies the seconds that a command names, for a check that it runs;
statements are judged at the page's own. `--list` prints the commands. What a command prints is
kept in the folder of its paper, a file for each command. A line for every command has processor
time in seconds and exit code. A command that exceeds `--limit` seconds on the wall ends with
code 124. Rows without a command are listed as "not run".
"""

import argparse
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "doc" / "papers.md"


def rows(text):
    """Yield for each row the paper, the experiment, and its commands as lists of words."""
    paper = script = None
    for line in text.splitlines():
        if line.startswith("## "):
            paper = None
        named = re.search(r"commands `(\w+)/(\w+\.py) FIGURE`", line)
        if named:
            paper, script = named.groups()
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if paper is None or not line.startswith("| ") or cells[0] == "experiment":
            continue
        if cells[1].startswith("the same"):
            continue
        of_script = re.search(r"`(\w+\.py)` in place", cells[1])
        commands = re.findall(r"`([a-z][^`]*)`", cells[1])
        if of_script:
            yield paper, cells[0], [[f"{paper}/{of_script[1]}"]]
        else:
            commands = [command for command in commands if not re.search("[A-Z]{4,}", command)]
            yield paper, cells[0], [[f"{paper}/{script}", *shlex.split(c)] for c in commands]


def shortened(words, share):
    """The command with its seconds multiplied."""
    at = {k + 1 for k, word in enumerate(words) if word.startswith("--seconds")}
    return [f"{float(word) * share:g}" if k in at else word for k, word in enumerate(words)]


def run(words, args, out):
    """Run a command; returns its processor time in seconds and its exit code."""
    command = [sys.executable, str(HERE / words[0]), *shortened(words[1:], args.share)]
    command = [str(Path(args.data) / word) if word.endswith(".npz") else word for word in command]
    takes = (HERE / words[0]).read_text()
    if '"--out"' in takes:
        command += ["--out", str(out)]
    if '"--data"' in takes and "--network" not in words:  # the folder would add its networks
        command += ["--data", args.data]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(out / f"{'_'.join(words[1:]).replace('/', '_') or 'merges'}.log", "w") as log:
        try:
            code = subprocess.run(
                command, stdout=log, stderr=subprocess.STDOUT, timeout=args.limit, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = 124
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, code


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", required=True, help="folder of the data sets")
    parser.add_argument("--out", required=True, help="folder for traces, tables and pictures")
    parser.add_argument("--only", default="", help="expression for the commands to run")
    parser.add_argument("--share", type=float, default=1.0, help="of the seconds of each command")
    parser.add_argument("--limit", type=float, help="seconds on the wall for a command")
    parser.add_argument("--list", action="store_true", help="print commands, run none")
    args = parser.parse_args()
    failed, seen = False, set()
    for paper, experiment, commands in rows(PAGE.read_text()):
        if not commands and not args.only:
            print(f"{'not run':>14}  {paper}: {experiment}", flush=True)
        out = Path(args.out) / paper
        out.mkdir(parents=True, exist_ok=True)
        for words in commands:
            what = shlex.join(shortened(words, args.share))
            if what in seen or not re.search(args.only, what):
                continue
            seen.add(what)
            if args.list:
                print(what)
                continue
            seconds, code = run(words, args, out)
            failed |= code != 0
            print(f"{seconds:7.1f} s {code:4d}  {what}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
