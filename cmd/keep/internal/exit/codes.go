package exit

// A Code is a status of the process, with what it means.
type Code struct {
	Status  int
	Meaning string
}

// Codes returns every status that a command ends with.
func Codes() []Code {
	return []Code{
		{Done, "done"},
		{Failed, "failed: what was asked for did not work, or --timeout came first"},
		{Misused, "misused: the command line, a script or keep.toml is wrong"},
		{NotFound, "not found: no such run, workflow, file, …"},
		{NeedsPerson, "a person must decide something: see keep inbox"},
		{Unreachable, "the database cannot be reached: another process is its host, it is not Keep's, a newer Keep wrote it, or its file cannot be opened"},
	}
}
