package main

import "slices"

// breaks are the ways in which Keep's guarantees can be broken by one change.
// Who changes a line that is named here moves the break along; who removes the
// need for a line removes its break.
var breaks = slices.Concat(lawsBreaks, engineBreaks, boundsBreaks, rehearsalBreaks, edgesBreaks, storeBreaks, commandBreaks, pageBreaks, keysBreaks, proxyBreaks)
