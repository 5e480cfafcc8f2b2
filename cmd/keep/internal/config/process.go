package config

// A ProcessVariable is a variable of the environment that is no setting of keep.toml.
type ProcessVariable struct{ Name, About string }

// ProcessVariables returns the variables that Keep reads beside those of settings, sorted by name. Help and
// the reference print them; a test compares them with the source.
func ProcessVariables() []ProcessVariable {
	return []ProcessVariable{
		{"BROWSER", "the program that opens a page, for keep connect, keep docs --open and keep dev"},
		{"CREDENTIALS_DIRECTORY", "a directory with secrets, one a file, as systemd makes it"},
		{"KEEP_BUNDLER", "Keep sets it for a process of its own; leave it unset"},
		{"KEEP_CEILING", "directories in which, and above which, no keep.toml is looked for from below"},
		{"KEEP_CONFIG", "the configuration file; --config wins"},
		{"KEEP_KEY", "the key that accounts and secrets are sealed with, instead of a file"},
		{"KEEP_SECRET_NAME", "the secret ${secret:name}, before any other place; NAME is its name in upper case, with _ for what is not a letter or a digit"},
		{"KEEP_TRUST", "directories whose keep.toml is believed although others own or may write it (see keep trust)"},
		{"NO_COLOR", "if it is not empty, there are no colours"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "where keep serve sends traces to, with /v1/traces after it"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "headers of what is sent there: name=value, with commas between them"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "must begin with http/ if it is set: traces are sent as http/json"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "the whole URL for traces; wins over the endpoint above"},
		{"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "headers for traces; win over the headers above"},
		{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "the same for traces alone"},
		{"SSH_CONNECTION", "if it is not empty, keep dev opens no browser: nobody sits at this machine"},
		{"TERM", "if it is dumb, nothing is animated and nothing coloured"},
		{"USER", "the name that decisions are recorded under, if the system does not know the user"},
		{"USERNAME", "the same on Windows"},
		{"XDG_CACHE_HOME", "where the compiled sandbox is kept (default: the place of the system)"},
		{"XDG_RUNTIME_DIR", "where hosts of one machine find each other (default: the place of temporary files)"},
	}
}
