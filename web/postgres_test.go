package web_test

import "testing"

// What pages read, show and do is the same on Postgres. These tests between them open
// every page and do every action; -postgres runs all the others there, too.
func TestOnPostgres(t *testing.T) {
	if *allOnPostgres {
		t.Skip("all tests are on Postgres")
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"links", TestEveryLinkLeadsSomewhere},
		{"actions", TestActions},
		{"deciders", TestSecondOfTwoDeciders},
		{"skip all", TestSkipAllThatMatch},
		{"skip one", TestSkipOne},
		{"payloads", TestLargePayload},
		{"export", TestExport},
		{"lists", TestPages},
		{"versions", TestVersionsAndLogs},
		{"keys", TestKeys},
		{"checkpoint", TestResetCheckpoint},
		{"live", TestLive},
		{"keyboard", TestKeyboard},
	} {
		t.Run(test.name, test.run)
	}
}
