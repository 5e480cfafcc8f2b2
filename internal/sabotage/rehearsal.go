package main

// rehearsalBreaks are about what is said of runs that did not happen, or happened before.
var rehearsalBreaks = []Break{
	{"test-overlooks-what-a-retry-reserves", "pinned", "rehearsal/scripttest/compare.go",
		`if len(run.Reservations) == 0 || reflect`, `if run.RetryOf != "" || reflect`, "./rehearsal/scripttest -run TestRun$"},
	{"recorded-test-has-secret-numbers", "no-ambient-power", "rehearsal/scripttest/scrub.go",
		`return s.number(v, key)`, `return v`, "./rehearsal/scripttest -run TestScrubNumbersByName"},
	{"recorded-test-forgets-false", "nothing-lost", "rehearsal/scripttest/toml.go",
		`if v != nil {
		w.line("result`, `if v != nil && v != false {
		w.line("result`, "./rehearsal/scripttest -run TestFile_TOML_of_false"},

	// prove: no level is granted that was not shown.
	{"prove-does-not-count", "witnessed", "cmd/keep/internal/prove/trials.go",
		`if n > 1 {`, `if n > 1<<20 {`, "./cmd/keep -run TestProve/a_key_that_is_not_honoured$"},
	{"prove-believes-a-late-list", "doubt-is-not-failure", "cmd/keep/internal/prove/report.go",
		`late := len(t.lags) > 0 &&`, `late := false &&`, "./cmd/keep -run TestProve/a_list_that_is_later"},
	{"prove-sends-unasked", "no-ambient-power", "cmd/keep/prove.go",
		`if !ok || !term.IsTerminal(int(in.Fd())) {`, `if _ = term.IsTerminal; !ok && false {`, "./cmd/keep -run TestProveAsksFirst"},

	// replay: nothing is asked, nothing is invented, and no difference is hidden.
	{"replay-asks-live", "no-ambient-power", "engine/seen.go",
		`if x.again != nil && h.fromOutside(c) {`, `if x.again != nil && false {`, "./rehearsal/replay -run TestEqual"},
	{"replay-invents-an-answer", "doubt-is-not-failure", "engine/replay.go",
		`return nil, &UnknownAnswer{c.Name, e.Params, "the run did not ask this"}`, `return json.RawMessage("null"), nil`, "./rehearsal/replay -run TestMissing"},
	{"replay-believes-a-changed-event", "pinned", "rehearsal/replay/args.go",
		`if trace.Digest(args...) != p.end.Script.In {
		r.missing(p.name, "trigger",`, `if false {
		r.missing(p.name, "trigger",`, "./rehearsal/replay -run TestMissing"},
	{"replay-hides-another-call", "explained", "rehearsal/replay/compare.go",
		`if known = got.Out == was.Out ||`, `if known = true ||`, "./rehearsal/replay -run TestDifferent"},
	{"replay-hides-another-order-key", "one-at-a-time", "rehearsal/replay/order.go",
		`r.differs(p.name, OrderKey, orNull(was), orNull(now))`, `_ = orNull`, "./rehearsal/replay -run TestOrderKey"},
	{"replay-has-keys-of-the-trigger-alone", "one-at-a-time", "engine/replay.go",
		`err = x.takeLane(ctx, reserved)`, `err = x.takeLane(ctx, reserved[:0])`, "./rehearsal/replay -run TestOrderKey"},
	{"compare-thinks-a-key-harmless", "one-at-a-time", "rehearsal/compare/law.go",
		`	case replay.MadeIDs:`, `	case replay.MadeIDs, replay.OrderKey:`, "./rehearsal/compare -run TestOrderKey"},
	{"plan-at-reads-live", "no-ambient-power", "rehearsal/plan/live.go",
		`if l.at != nil {`, `if false {`, "./rehearsal/plan -run TestAt"},
	{"plan-at-has-the-checkpoint-of-today", "explained", "rehearsal/plan/plan.go",
		`rc.Checkpoint = cfg.At.readCheckpoint`, `_ = cfg.At.readCheckpoint`, "./rehearsal/plan -run TestAt"},
	{"plan-asks-a-broken-database-without-end", "bounded", "rehearsal/overlay.go",
		`if o.broke != nil {`, `if false {`, "./rehearsal/plan -run TestMake_ends_with_its_database"},
	{"plan-forgets-how-full-a-checkpoint-is", "explained", "rehearsal/overlay.go",
		`return size + before, nil`, `return size + 0*before, nil`, "./rehearsal/plan -run TestMake_of_a_full_checkpoint"},
	{"plan-reads-what-wants-to-be-left-alone", "no-ambient-power", "rehearsal/plan/live.go",
		`time.Now().Before(shut.until)`, `false`, "./rehearsal/plan -run TestMake_leaves_a_service_alone"},
	{"rehearsal-leaps-too-far", "explained", "rehearsal/clock.go",
		`t = up.Add(time.Millisecond)`, `t = up.Add(2 * time.Millisecond)`, "./rehearsal/scripttest -run TestClock"},
	{"plan-hides-what-is-held-up", "explained", "rehearsal/plan/plan.go",
		`if len(r.HeldUp) > 0 {`, `if false {`, "./rehearsal/plan -run TestMake_says_what_a_run_holds_up"},
	{"plan-of-an-input-has-what-is-due", "explained", "rehearsal/plan/plan.go",
		`if cfg.Take != nil {`, `if false {`, "./rehearsal/plan -run TestMake_of_some_events"},
	{"plan-guesses-silently", "explained", "rehearsal/plan/plan.go",
		`guessed[run.ID] = guessed[run.ID] || c.guessed`, `_ = c.guessed`, "./rehearsal/plan -run TestMake_goes_to_the_end"},
	{"plan-sends", "no-ambient-power", "rehearsal/tools.go",
		`	m := playedMutator{spec: spec, services: s}`, `	if _, sends := t.(connector.Mutator); sends {
		return t
	}
	m := playedMutator{spec: spec, services: s}`, "./rehearsal/plan -run TestMake"},
	{"plan-takes-the-same-room-twice", "explained", "rehearsal/plan/budget.go",
		`balance.Spent = balance.Spent.Plus(p.taken[s.Name])`, `balance.Spent = balance.Spent.Plus(0)`, "./rehearsal/plan -run TestMake_says_what_budgets_have"},
	{"tests-share-a-script-that-read-the-time", "explained", "rehearsal/shared.go",
		`case p.Constant():`, `case true:`, "./rehearsal/scripttest -run TestRun_sees_no_other_test"},
	{"loading-hides-that-it-read-the-time", "explained", "script/sandbox/imports.go",
		`in.phase.asked = true
	in.mem.WriteUint64Le`, `in.mem.WriteUint64Le`, "./script/sandbox -run TestConstant"},
	{"test-is-made-without-reads", "doubt-is-not-failure", "rehearsal/scripttest/record.go",
		`if len(parts) == 0 {`, `if false {`, "./rehearsal/scripttest -run TestRecord_refuses"},
	{"test-of-a-run-expects-no-call", "explained", "rehearsal/scripttest/expect.go",
		`out = append(out, r.row(m, got[i], fmt.Sprintf("calls[%d]", i)))`, `out = append(out, map[string]any{})`, "./rehearsal/scripttest -run TestRecord$"},
	{"test-of-a-run-keeps-addresses", "explained", "rehearsal/scripttest/record.go",
		`if cfg.Plain {`, `if true {`, "./rehearsal/scripttest -run TestRecord$"},

	// compare: what is not known is not safe, and nothing that differs is the same.
	{"compare-passes-what-is-unknown", "doubt-is-not-failure", "rehearsal/compare/law.go",
		`case unknown, done == 0:`, `case unknown && done == 0:`, "./rehearsal/compare -run TestImpactOf"},
	{"compare-passes-what-it-had-no-time-for", "bounded", "rehearsal/compare/law.go",
		`done, unknown := 0, !whole`, `done, unknown := 0, false`, "./rehearsal/compare -run TestImpactOf|TestBounds"},
	{"compare-skips-earlier-attempts", "explained", "rehearsal/compare/run.go",
		`covered[p] = covered[p] || !open[p]`, `covered[p], covered["prepare"], covered["mutate"] = true, true, true`, "./rehearsal/compare -run TestAttempts"},
	{"compare-believes-one-replay", "explained", "rehearsal/compare/run.go",
		`if err != nil || !bytes.Equal(a, b) {`, `if err != nil || bytes.Equal(a, nil) && len(b) > 0 {`, "./rehearsal/compare -run TestNondeterminism"},
	{"compare-takes-back-what-happened", "doubt-is-not-failure", "rehearsal/compare/law.go",
		`case !state.Happened():`, `case false:`, "./rehearsal/compare -run TestRemedyOf|TestAttempts"},
	{"compare-deploys", "no-ambient-power", "cmd/keep/deploy.go",
		`	if compare {
		err :=`, `	if compare && len(scripts) > 1<<20 {
		err :=`, "./cmd/keep -run TestCompare$"},
	{"compare-sends-a-pass-for-doubt", "doubt-is-not-failure", "cmd/keep/compare.go",
		`if r.Impact != string(compare.Safe) {`, `if r.Impact == string(compare.Impactful) {`, "./cmd/keep -run TestCompare$"},
	{"compare-forgets-a-phase-that-is-new", "explained", "rehearsal/compare/run.go",
		`(covered["next"] || !h.HasNext || !committed)`, `true`, "./rehearsal/compare -run TestNewPhase"},
	{"test-without-an-end", "bounded", "rehearsal/scripttest/run.go",
		`if result.Cut && len(result.Runs) >= t.maxRuns() {`, `if false {`, "./rehearsal/scripttest -run TestRun_has_an_end"},
	{"test-of-life-has-a-key", "no-ambient-power", "rehearsal/scripttest/scrub.go",
		`token|api[_-]?key|authorization`, `token|api_?key|authorization`, "./rehearsal/scripttest -run TestScrubByName"},
	{"test-of-life-has-a-secret-in-a-text", "no-ambient-power", "rehearsal/scripttest/scrub.go",
		`if inner, is := s.inner(v); is {`, `if inner, is := "", false; is {`, "./rehearsal/scripttest -run TestScrubByName"},
	{"plan-does-again-what-was-done", "explained", "rehearsal/overlay.go",
		`if m, there, err := o.base.Rival(ctx, u); there || err != nil {`, `if m, there, err := o.base.Rival(ctx, u); err != nil {`, "./rehearsal/plan -run TestPlanOfWhatWasDone"},
	{"compare-forgets-what-an-attempt-at-a-job-did", "explained", "rehearsal/compare/run.go",
		`case r.Kind != keep.Job:`, `case r.Closed:`, "./rehearsal/compare -run TestAttemptsOfAJob"},
	{"compare-takes-an-attempt-that-is-not-known", "doubt-is-not-failure", "rehearsal/compare/run.go",
		`|| run.Closed || out.Change`, `|| out.Change`, "./rehearsal/compare -run TestAttemptsOfAJob"},
	{"replay-hides-that-there-is-more", "explained", "rehearsal/replay/compare.go",
		`&& (said || got.More) {`, `&& (said && got.More) {`, "./rehearsal/replay -run TestMore"},
	{"replay-takes-more-of-nothing", "explained", "engine/replay.go",
		`res.More, res.Failure = hasMore(out), x.moreOfNothing(out, host)`, `res.More = hasMore(out)`, "./rehearsal/replay -run TestMore"},
	{"compare-judges-by-what-it-shows", "explained", "rehearsal/compare/run.go",
		`	for _, d := range all {
		if !harmless(d) {`, `	for _, d := range all[:min(len(all), maxRun)] {
		if !harmless(d) {`, "./rehearsal/compare -run TestMoreThanIsShown"},
	{"replay-forgets-a-call-treated-as-done", "explained", "rehearsal/replay/compare.go",
		`&& !called && p.end.Error == nil`, `&& (!called || called) && p.end.Error == nil`, "./rehearsal/replay -run TestTreatedAsDone"},
	{"replay-has-its-own-chance", "pinned", "engine/replay.go",
		`Seed: p.Seed, Host`, `Seed: []byte{1}, Host`, "./rehearsal/replay -run TestEqual"},

	// traces: what was left out is said, and what was seen is kept with the next commit.
	{"trace-hides-what-was-cut", "bounded", "law/trace/trace.go",
		`e.Result, e.Cut = nil, true`, `e.Result, e.Cut = nil, false`, "./law/trace -run TestLimit"},
	{"trace-hides-that-parts-were-swept", "explained", "law/trace/trace.go",
		`t.Gap = t.Gap || have != part.After`, `t.Gap = have < 0`, "./law/trace -run TestGap"},
	{"trace-is-kept-at-the-end-only", "explained", "engine/execution.go",
		`if x.seen.Due() || x.run.Closed`, `if x.run.Closed`, "./engine -run TestSeenByAJobThatDies"},
	{"trace-says-no-read-twice", "explained", "law/trace/trace.go",
		`r.under, r.said = &e, false`, `r.under = &e`, "./engine -run TestWaitsForRead"},
}
