package otlp

// WaitOf is waitOf.
var WaitOf = waitOf
