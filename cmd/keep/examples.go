package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// examples are what help shows of each command: lines that a shell takes. A test reads each as a shell
// would, and another one finds commands without any.
var examples = map[string]string{
	"accounts":           "keep accounts\nkeep accounts --json",
	"accounts export":    "keep accounts export shop --recipient age1… > shop.age\nkeep accounts export work-mail --move --out work-mail.age",
	"accounts import":    "keep accounts import shop.age\nkeep accounts import shop.age --replace",
	"accounts recipient": "keep accounts recipient",
	"accounts rekey":     "keep accounts rekey",
	"accounts renew":     "keep accounts renew work-mail",
	"accounts revoke":    "keep accounts revoke work-mail --yes",
	"accounts show":      "keep accounts show work-mail",
	"accounts test":      "keep accounts test work-mail",
	"api": `keep api GET '/runs?open=true'
keep api POST /workflows/invoices/pause --key pause-1
keep api POST /inputs/skip '{"match": {"q": "newsletter"}, "preview": true}'`,
	"budgets":           "keep budgets",
	"budgets show":      "keep budgets show payouts",
	"check":             "keep check .\nkeep check invoices.js --json\nkeep check --db keep.db",
	"checkpoints reset": "keep checkpoints reset contacts poll\nkeep checkpoints reset contacts poll since --yes --note \"begin anew\"",
	"checkpoints set":   `keep checkpoints set contacts poll since '"2026-11-01T00:00:00Z"' --yes --note "the feed was restored"`,
	"checkpoints show":  "keep checkpoints show contacts poll",
	"connect":           "keep connect gmail --name work-mail\nkeep connect stripe < key.txt\nkeep connect mcp:tracker",
	"db backup":         "keep db backup keep-2026-11-26.db",
	"db check":          "keep db check\nkeep db check --db keep-2026-11-26.db",
	"db copy":           "keep db copy keep.db postgres://keep@db.internal/keep",
	"db migrate":        "keep db migrate",
	"db restored":       "keep db restored\nkeep db restored --db postgres://keep@db.internal/keep",
	"db sweep":          "keep db sweep\nkeep db sweep --older-than 90d --yes",
	"db unseal":         "keep db unseal keep.db postgres://keep@db.internal/keep",
	"demo":              "keep demo\nkeep demo --dir payments",
	"demo bank":         "keep demo bank",
	"deploy":            "keep deploy .\nkeep deploy invoices.js --compare",
	"dev":               "keep dev .\nkeep dev invoices.js --listen off",
	"docs":              "keep docs\nkeep docs retention --open\nkeep docs --list\nkeep docs --print monitoring\nkeep docs search budget window",
	"docs search":       "keep docs search lost answer\nkeep docs search retention --json",
	"doctor":            "keep doctor\nkeep doctor --compact",
	"edit":              `keep edit invoices "also label the mail"`,
	"events":            "keep events --status pending\nkeep events --topic email.received --since 2h\nkeep events --follow",
	"events redo":       "keep events redo invoices email.received mail-17\nkeep events redo invoices email.received --all --since 2h --yes",
	"events show":       "keep events show last\nkeep events show invoices email.received mail-17",
	"events skip":       "keep events skip invoices email.received mail-17 mail-18",
	"events unskip":     "keep events unskip invoices email.received mail-17",
	"gateway":           "claude mcp add keep -- keep gateway\nkeep gateway --agent alice\nkeep gateway --listen 127.0.0.1:7421",
	"gateway import":    "keep gateway import ~/.claude.json >> keep.toml",
	"gateway install":   "keep gateway install",
	"gateway pair": `keep gateway pair tracker
keep gateway pair tracker.create_issue --params '{"repo": "sandbox", "title": "{n}", "body": "A trial."}'`,
	"gateway tools":        "keep gateway tools --json\nkeep gateway tools --pin",
	"gateway tools accept": "keep gateway tools accept tracker.create_issue\nkeep gateway tools accept tracker.create_issue --as 3f9c0a1be2d4",
	"audit":                "keep audit\nkeep audit --global\nkeep audit --workflow payouts",
	"grants":               "keep grants\nkeep grants --workflow payouts",
	"grants give":          `keep grants give payouts bank.pay --when "params.currency == 'EUR'" --approve 'params.amount > 500' --yes`,
	"grants show":          "keep grants show payouts",
	"grants take":          "keep grants take payouts bank.pay --yes\nkeep grants take payouts",
	"guide":                "keep guide patterns\nkeep guide --schema keep > keep.schema.json\nkeep guide --skill .claude/skills/keep",
	"hooks":                "keep hooks",
	"hosts":                "keep hosts",
	"hosts drain":          "keep hosts drain host_7k2m9q\nkeep hosts drain host_7k2m9q --undo",
	"hosts show":           "keep hosts show host_7k2m9q",
	"idempotency backend": `keep idempotency backend --listen 127.0.0.1:8000
keep proxy --upstream http://127.0.0.1:8000 --db keys.db
keep idempotency test http://127.0.0.1:7435/orders --describe programmable.toml`,
	"idempotency guide": "keep idempotency guide >> docs/api.md",
	"idempotency test":  "keep idempotency test http://127.0.0.1:7435/orders --describe orders.toml",
	"inbox":             "keep inbox\nkeep inbox --workflow payouts --json",
	"inbox do": `keep inbox do esc_… check-again
keep inbox do esc_… did-not-happen --yes --note "looked in the sent folder"
keep inbox do --all approve --tool bank.pay`,
	"inbox show":    "keep inbox show last",
	"init":          "keep init payments",
	"inputs":        `keep inputs --text "invoice 17"` + "\nkeep inputs --status pending --since 2h",
	"inputs redo":   "keep inputs redo in_7k2m9q\nkeep inputs redo in_7k2m9q --yes",
	"inputs show":   "keep inputs show last",
	"inputs skip":   "keep inputs skip in_7k2m9q\nkeep inputs skip --all --workflow invoices --match newsletter --yes",
	"inputs unskip": "keep inputs unskip in_7k2m9q",
	"items":         "keep items --status failed\nkeep items --workflow import --text ada",
	"items reprocess": `keep items reprocess import row-17
keep items reprocess import --status failed --yes`,
	"items show":   "keep items show last\nkeep items show import row-17",
	"items skip":   "keep items skip import row-17 --yes",
	"items unskip": "keep items unskip import row-17 --yes",
	"keys":         "keep keys\nkeep keys --status unknown",
	"keys forget":  "keep keys forget key_36aagtdmsnzqbd7rejge7z5zdv --yes",
	"keys import":  "keep keys import keys.jsonl",
	"keys resolve": `keep keys resolve key_36aagtdmsnzqbd7rejge7z5zdv did-not-happen --yes
keep keys resolve key_36aagtdmsnzqbd7rejge7z5zdv happened --status 201 --body '{"id": 7}'`,
	"keys show":      "keep keys show key_36aagtdmsnzqbd7rejge7z5zdv",
	"login":          "keep login",
	"mcp":            "claude mcp add keep -- keep mcp\nkeep mcp --role viewer",
	"mutations":      "keep mutations --tool bank.pay --since 2h\nkeep mutations --status indeterminate",
	"mutations show": "keep mutations show last",
	"packs":          "keep packs",
	"packs copy":     "keep packs copy slack",
	"packs show":     "keep packs show slack",
	"pause":          "keep pause invoices --note \"the bank is closed until Monday\"\nkeep pause --all",
	"plan": `keep plan
keep plan invoices.js --json
keep plan invoices.js --topic email.received --event '{"messageId":"m1","from":"a@example.com"}'
keep plan --at run_01J…
keep plan . --html plan.html`,
	"proposals":        "keep proposals\nkeep proposals --status waiting",
	"proposals accept": `keep proposals accept invoices@1.1 --note "reads the new field"`,
	"proposals reject": `keep proposals reject invoices@1.1 --note "the amount is in cents"`,
	"proposals show":   "keep proposals show invoices@1.1",
	"prove": `keep prove sandbox.postMessage --calls 10
keep prove shop.createCustomer --params '{"email": "{n}@example.com"}' --yes --json`,
	"proxy":          "keep proxy --upstream http://127.0.0.1:8000 --db keys.db",
	"publish":        `keep publish invoices email.received --id mail-17 '{"from": "ada@example.com"}'`,
	"repairs":        "keep repairs\nkeep repairs --status waiting",
	"repairs accept": "keep repairs accept invoices@1.1",
	"repairs reject": `keep repairs reject invoices@1.1 --note "the amount is in cents"`,
	"repairs show":   "keep repairs show invoices@1.1",
	"resume":         "keep resume invoices",
	"run":            "keep run .\nkeep run invoices.js --timeout 10m --json",
	"runs":           "keep runs --open\nkeep runs --workflow invoices --error http-503",
	"runs cancel":    `keep runs cancel run_7k2m9q --yes --note "the order was withdrawn"`,
	"runs logs":      "keep runs logs last",
	"runs replay":    "keep runs replay run_01J…\nkeep runs replay last --with invoices.js\nkeep runs replay last --current --json",
	"runs retry":     "keep runs retry last --now",
	"runs show":      "keep runs show last",
	"secrets":        "keep secrets",
	"secrets rm":     "keep secrets rm CRM_TOKEN",
	"secrets set":    "keep secrets set CRM_TOKEN\nkeep secrets set CRM_TOKEN < token.txt",
	"serve":          "keep serve .\nkeep serve --listen 127.0.0.1:8080",
	"status":         `keep status --exit-code >/dev/null || keep status | mail -s "Keep" ops@example.com`,
	"test":           "keep test\nkeep test invoices.js --watch\nkeep test --junit report.xml\nkeep test --record last --out invoices.test.toml",
	"token":          "keep token",
	"token add":      "keep token add ada --role operator\nkeep token add deploys --role author --life 720h",
	"token revoke":   "keep token revoke 7k2m9q4dxa",
	"topics":         "keep topics --workflow invoices",
	"topics show":    "keep topics show invoices email.received",
	"trigger":        "keep trigger invoices\nkeep trigger invoices poll",
	"trust":          "keep trust .",
	"types":          "keep types > keep.d.ts",
	"update":         "keep update --check\nkeep update --check --json",
	"why":            "keep why mail-17\nkeep why invoices@2.0",
	"workflows":      "keep workflows",
	"workflows compare": `keep workflows compare invoices 1.0 2.0
keep deploy invoices.js --compare`,
	"workflows show":     "keep workflows show invoices",
	"workflows versions": "keep workflows versions invoices",
	"write": `keep write "when an invoice comes by mail, add a row to the sheet"
keep write "post new orders to the channel" --answer "#orders" --out orders.js`,
}

// addExamples gives each command its examples.
func addExamples(cmd *cobra.Command) {
	path := strings.TrimPrefix(cmd.CommandPath(), "keep ")
	if text, ok := examples[path]; ok {
		cmd.Example = "  " + strings.ReplaceAll(text, "\n", "\n  ")
	}
	for _, sub := range cmd.Commands() {
		addExamples(sub)
	}
}
