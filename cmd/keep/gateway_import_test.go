package main

import (
	"strings"
	"testing"
)

// Addresses of databases have a password without a scheme before it, too, or as one of their words.
func TestImportedDSN(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"--dsn=app:hunter2@tcp(db:3306)/shop":         "--dsn=${env:SHOP_DSN}",
		"DATABASE=app:hunter2@db:5432/shop":           "DATABASE=${env:SHOP_DATABASE}",
		"app:hunter2@tcp(db:3306)/shop":               "${env:SHOP_DSN}",
		"app/x:hunter2@db":                            "${env:SHOP_DSN}",
		"host=db user=app password=hunter2 port=1":    "${env:SHOP_DSN}",
		"Server=db;Database=shop;Uid=app;Pwd=hunter2": "${env:SHOP_DSN}",
		"dbname=shop pwd=hunter2":                     "${env:SHOP_DSN}",
		"postgres://app:hunter2@db/shop":              "postgres://app:${env:SHOP_PASSWORD}@db/shop",
		"postgres://db/shop":                          "postgres://db/shop",
		"db:3306":                                     "db:3306",
		"host=db":                                     "host=db",
		"@scope/server@1.2":                           "@scope/server@1.2",
		"git@example.com:shop/server.git":             "git@example.com:shop/server.git",
		"mcp/shop:1.0@sha256:0123":                    "mcp/shop:1.0@sha256:0123",
		"shop:1.0@sha256:0123":                        "shop:1.0@sha256:0123",
		"npm:@scope/server":                           "npm:@scope/server",
	} {
		if got := argument("shop", "", arg); got != want {
			t.Errorf("%s: %s, want %s", arg, got, want)
		}
	}
	for flag, arg := range map[string]string{"--dsn": "app:hunter2@tcp(db:3306)/shop", "--connection-string": "Data Source=db;hunter2", "-dsn": "hunter2"} {
		if got, want := argument("shop", flag, arg), "${env:SHOP_"+variable(strings.TrimLeft(flag, "-"))+"}"; got != want {
			t.Errorf("%s %s: %s, want %s", flag, arg, got, want)
		}
	}
	if got := argument("shop", "app:hunter2@db", "app:hunter3@db"); got != "${env:SHOP_DSN}" {
		t.Errorf("after another one: %s", got)
	}
	if got, want := argument("shop", "--dsn", "postgres://app:hunter2@db/shop"), "postgres://app:${env:SHOP_PASSWORD}@db/shop"; got != want {
		t.Errorf("an address as a DSN: %s, want %s", got, want)
	}
}

// A password has short names, too.
func TestImportedPasswords(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--pass", "hunter2"}, {"-e", "SMTP_PASS=hunter2"}, {"--env=SMTP_PASS=hunter2"}, {"--db-pass=hunter2"}, {"MYSQL_PASS=hunter2"}, {"--pwd", "hunter2"}, {"DB_PWD=hunter2"}, {"--passphrase", "hunter2"},
		{"--pat", "hunter2"}, {"JIRA_PAT=hunter2"}, {"--cookie", "sid=hunter2"},
	} {
		if got := strings.Join(arguments("shop", map[string]int{}, args), " "); strings.Contains(got, "hunter2") || !strings.Contains(got, "${env:SHOP_") {
			t.Errorf("%q: %s", args, got)
		}
	}
	for _, args := range [][]string{{"-e", "LEVEL=info"}, {"--path", "/srv"}, {"--pattern=a"}, {"bypass=1"}, {"--compass", "on"}} {
		if got := strings.Join(arguments("shop", map[string]int{}, args), " "); got != strings.Join(args, " ") {
			t.Errorf("%q: %s", args, got)
		}
	}
}
