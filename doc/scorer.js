// SPDX-License-Identifier: BSD-3-Clause
// Order of what the search finds: recipes and the guide before pages for developers.
const PLACES = [
  [/^recipes\//, 14],
  [/^guide\//, 10],
  [/^(gallery|api)\//, 0],
  [/^background\//, -4],
  [/^(design|adding_|building|contributing|developers|changelog|papers|reproduction_|scale|dask_limits)/, -30],
];
var Scorer = {
  score: ([docname, title, anchor, descr, score]) =>
    score + (PLACES.find(([place]) => place.test(docname)) || [null, 0])[1],
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
