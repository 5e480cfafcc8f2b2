package main

import (
	"bytes"
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

// A password has names of one letter, too. What else these names have is not of a password, and stays.
func TestImportedShortFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-u", "bob:hunter2"}, {"--user", "bob:hunter2"}, {"--user=bob:hunter2"}, {"-u=bob:hunter2"}, {"-ubob:hunter2"}, {"--proxy-user", "bob:hunter2"}, {"-p", "hunter2"}, {"-p=hunter2"}, {"-phunter2"},
		{"-k", "hunter2"}, {"-k=hunter2"}, {"--login", "bob:hunter2"},
	} {
		if got := strings.Join(arguments("shop", map[string]int{}, args), " "); strings.Contains(got, "hunter2") || !strings.Contains(got, "${env:SHOP_") {
			t.Errorf("%q: %s", args, got)
		}
	}
	for _, args := range [][]string{{"-u", "bob"}, {"--user", "1000:1000"}, {"-u", "1000:1000"}, {"-p", "8080"}, {"-p", "127.0.0.1:8080:80"}, {"-p8080:80"}, {"-p=3000"}, {"-p", "80/tcp"}, {"-k", "--verbose"}, {"-y", "pkg"}, {"-pl", "app"}, {"-port", "80"}, {"-p", "@scope/server@1.2.0"}, {"-p", "typescript"},
		{"-p", "./tsconfig.json"}, {"-p", "/srv/data"}} {
		if got := strings.Join(arguments("shop", map[string]int{}, args), " "); got != strings.Join(args, " ") {
			t.Errorf("%q: %s", args, got)
		}
	}
}

// The lines for clients are pasted into a shell, which takes each path as one word.
func TestInstallQuotesPaths(t *testing.T) {
	t.Parallel()
	var out, talk bytes.Buffer
	if err := newApp(&out, &talk).printInstall("/opt/my tools/keep", "/home/o'hara/my keep.toml"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"claude", "codex"} {
		if want := name + ` mcp add keep -- '/opt/my tools/keep' gateway --config '/home/o'\''hara/my keep.toml'` + "\n"; !strings.Contains(out.String(), want) {
			t.Errorf("want %q in\n%s", want, out.String())
		}
	}
}
