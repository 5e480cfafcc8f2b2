package main

// coreLimit is less than any file of a process's memory has.
const coreLimit = 1
