// Package cputime says what a process has used of the processors, for limits, benchmarks and tests:
// unlike the time that passes, it hardly depends on what else the machine does.
package cputime
