// Package config reads keep.toml and the environment, and says everything that
// is wrong with them at once, each with its line.
//
// # Where a value comes from
//
// The defaults, then keep.toml, then the environment; later ones win. Nothing
// has to be configured: without a keep.toml the database is keep.db in the
// project's directory, and there are no connections.
//
// The variable of a setting is KEEP_ and its path in upper case, with an
// underscore for every character that is not a letter or a digit:
//
//	db                            KEEP_DB
//	policy.retry.first            KEEP_POLICY_RETRY_FIRST
//	connections.crm.base_url      KEEP_CONNECTIONS_CRM_BASE_URL
//	connections.crm.tools.x.path  KEEP_CONNECTIONS_CRM_TOOLS_X_PATH
//
// An empty variable is as good as none. A list is written with commas or as TOML, a table as a TOML inline table. The
// names of connections, tools and headers come from keep.toml: a variable can
// set any key of a connection that is there, and cannot make one, since its
// name could not be told from the variable's. A variable of these sections that
// sets nothing is a warning.
//
// # Secrets
//
// A string takes ${env:NAME} and ${secret:name}; $${ is a plain ${. A secret is
// looked for in the environment as KEEP_SECRET_NAME (upper case, - and . are
// _), then in $CREDENTIALS_DIRECTORY/name, then in .secrets/name beside
// keep.toml, which nobody else may be able to read, then in the database, where
// keep secrets set puts it. ${account:NAME} in a header of a connection is what a
// connected account holds when a request is sent. One newline at the end of a
// file is not part of the secret. No message of this package holds the value of
// a secret.
//
// # What is strict
//
// An unknown key is an error that suggests a known one. Every error has the
// line and the path of the key. A section that a later version reads is an
// unknown key for this one: a setting that is silently ignored is worse than
// one that is refused.
//
// # Paths
//
// The database, and the paths of connections, are relative to the directory of
// keep.toml, wherever the command was started.
package config
