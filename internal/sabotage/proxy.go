package main

// proxyBreaks are about keep proxy, and about what worlds of keys notice.
var proxyBreaks = []Break{
	// The proxy.
	{"proxy-reads-headers-without-end", "bounded", "idempotency/proxy/proxy.go",
		`		MaxResponseHeaderBytes: maxHeader,`, ``, "./idempotency/proxy -run TestAnswersThatAreNone"},
	{"proxy-status-that-is-none", "doubt-is-not-failure", "idempotency/proxy/upstream.go",
		`	if resp.StatusCode < 100 {`, `	if false {`, "./idempotency/proxy -run TestAnswersThatAreNone"},
	{"proxy-holds-streams-that-are-over", "bounded", "idempotency/proxy/proxy.go",
		`defer func() { c.over() }()`, `_ = c.over`, "./idempotency/proxy -run TestStreamsLeaveNothing"},
	{"metrics-wait-for-a-silent-database", "bounded", "idempotency/proxy/admin.go",
		`context.WithTimeout(r.Context(), 2*time.Second) // who`, `context.WithCancel(r.Context()) // who`, "./idempotency/proxy -run TestMetricsWhileTheStoreIsSilent"},
	{"proxy-asks-the-upstream-for-another", "no-ambient-power", "idempotency/proxy/proxy.go",
		`	return a.p.elsewhere.RoundTrip(r)`, `	return a.p.upstream.RoundTrip(r)`, "./idempotency/proxy -run TestDialIsOfTheUpstream"},
	{"proxy-stops-in-the-middle-of-a-stream", "settled-stays", "idempotency/proxy/upstream.go",
		`if c.guarded && resp.StatusCode`, `if false && resp.StatusCode`, "./idempotency/proxy -run TestStopWaitsForAStreamWithAKey"},
	{"proxy-asks-leave-for-a-body-that-is-there", "nothing-lost", "idempotency/proxy/proxy.go",
		`			if callOf(r.In).guarded {`, `			if callOf(r.In).guarded && r.Out.Header == nil {`, "./idempotency/proxy -run TestRequestThatIsWholeExpectsNothing"},
	{"proxy-probes-another-caller", "once", "idempotency/proxy/config.go",
		`strings.Trim(q.Header.Get(name), " \t")`, `q.Header.Get(name)`, "./idempotency/proxy -run TestProbeAsksAboutTheCallerItself"},
	{"admin-silence-frees-the-key", "once", "idempotency/proxy/admin.go",
		`	if in.Happened == nil {`, `	if in.Happened == nil {
		in.Happened = new(bool)
	}
	if false {`, "./idempotency/proxy -run TestResolveSaysWhetherItHappened"},
	{"ready-writes-for-each-who-asks", "bounded", "idempotency/proxy/admin.go",
		`if p.readyAt.IsZero() ||`, `if true ||`, "./idempotency/proxy -run TestReadyOnceASecond"},
	{"proxy-half-an-answer-is-whole", "settled-stays", "idempotency/execute.go",
		`if c.mayBeCut(a) {`, `if false {`, "./idempotency/proxy -run TestUntouched/ends_with_connection"},
	{"proxy-connection-hides-the-identity", "once", "idempotency/proxy/proxy.go",
		`r.Out.Header[name] = lines
				}
			}
			r.Out.Host`, `_ = lines
				}
			}
			r.Out.Host`, "./idempotency/proxy -run TestUntouched/identity"},
	{"proxy-timer-counts-the-client", "doubt-is-not-failure", "idempotency/proxy/upstream.go",
		`	u.call.timer.Stop()
	n, err := u.ReadCloser.Read(p)`, `	n, err := u.ReadCloser.Read(p)`, "./idempotency/proxy -run TestUntouched/slow_upload"},
	{"proxy-has-its-transport-send-again", "once", "idempotency/proxy/proxy.go",
		`			sendOnce(r.Out.Header)
`, ``, "./idempotency/proxy -run TestSentOnceOnAKeptConnection"},
	{"proxy-not-sent-is-not-done", "explained", "idempotency/proxy/upstream.go",
		`		if idempotency.Repeated(ctx) {`, `		if false {`, "./idempotency/proxy -run TestNotSentAfterADoubt"},
	{"proxy-dies-before-its-backend", "doubt-is-not-failure", "idempotency/proxy/proxy.go",
		`rule.EffectTimeout = connectTimeout + time.Duration(cfg.UpstreamTimeout)`, `_ = connectTimeout`, "./idempotency/proxy -run TestProxy/probe_while"},
	{"proxy-starts-where-keys-were-lost", "once", "cmd/keep/proxy.go",
		`		return keys.Lost(ctx)
`, `		return nil
`, "./cmd/keep -run TestProxyWhoseServerLostKeys"},
	{"proxy-shows-that-an-answer-was-read-in-a-gateway-world", "once", "gateway/http.go",
		`r.ProtoMajor == 1 && !passedOn &&`, `(r.ProtoMajor == 1 || passedOn) &&`, "./gateway -run TestWorlds -seeds 400"},
	{"proxy-shows-that-an-answer-was-read", "once", "gateway/http.go",
		`r.ProtoMajor == 1 && !passedOn && `, `r.ProtoMajor == 1 && (!passedOn || true) && `, "./gateway -run TestRepeatedBehindAProxy"},
	// Worlds of keys.
	{"guard-goes-by-its-own-clock-in-a-key-world", "once", "idempotency/clock.go",
		`	c.time.Set(now, sent)`, `	c.time.Set(sent, sent.Add(now.Sub(now)))`, "./idempotency -run TestKeyWorlds/clocks"},
	{"guard-crash-frees-the-key-in-a-key-world", "once", "law/key/law.go",
		`		LeaseEnded: Unknown,`, `		LeaseEnded: Released,`, "./idempotency -run TestKeyWorlds"},
	{"guard-late-owner-is-believed-in-a-key-world", "settled-stays", "law/key/law.go",
		`case ofOwner(f.Evidence) && (from == absent || f.Fence != r.Fence):`, `case ofOwner(f.Evidence) && from == absent:`, "./idempotency -run TestKeyWorlds"},
	{"guard-other-body-replays-in-a-key-world", "once", "law/key/classify.go",
		`case r.Fingerprint != c.Fingerprint && r.Fingerprint != Any:`, `case false:`, "./idempotency -run TestKeyWorlds"},
	{"guard-renewed-token-runs-in-a-key-world", "once", "idempotency/guard.go",
		`	if (rt.callerMayChange || holder != "") && !c.Repeatable {`, `	if false {`, "./idempotency -run TestKeyWorlds"},
	{"guard-executes-beside-one-without-a-record-in-a-key-world", "once", "idempotency/call.go",
		`		_, here = c.g.executing.LoadOrStore(c.claim.ID, bare)`, ``, "./idempotency -run TestKeyWorlds"},
	{"guard-commits-a-500-in-a-key-world", "all-or-nothing", "idempotency/execute.go",
		`if tx != nil && worked && e.Answer.Status < 500 {`, `if tx != nil && worked {`, "./idempotency -run TestKeyWorlds$ -kind transactions"},
	{"guard-commit-that-failed-did-nothing-in-a-key-world", "doubt-is-not-failure", "idempotency/tx.go",
		`		undone = false // a commit`, `		undone = c.rt.Atomic // a commit`, "./idempotency -run TestKeyWorlds$ -kind transactions -seeds 1000"},
	{"guard-commits-beside-its-record-in-a-key-world", "once", "idempotency/tx.go",
		`	return next, tx.Write(ctx, next)`, `	return next, nil`, "./idempotency -run TestKeyWorlds$ -kind transactions"},
	{"retry-that-did-nothing-undoes-a-doubt-in-a-key-world", "doubt-is-not-failure", "law/key/law.go",
		`f.Evidence == Nothing && r.doubtsBefore() > 0 && !r.Atomic:`, `false:`, "./idempotency -run TestKeyWorlds$ -kind configurations"},
	{"answer-is-kept-for-less-in-a-key-world", "settled-stays", "law/key/law.go",
		`r.Answer, r.ExpiresAt = f.Answer, now.Add(r.ExpiresAt.Sub(r.CreatedAt))`, `r.Answer, r.ExpiresAt = f.Answer, now.Add(10*time.Minute)`, "./idempotency -run TestKeyWorlds$ -kind configurations"},
	{"old-page-decides-about-a-later-request-in-a-key-world", "once", "idempotency/keys.go",
		`	if !isSeen {`, `	if !isSeen && r.Rev < 0 {`, "./idempotency -run TestKeyWorlds$ -kind people -seeds 4000"},
	{"person-answers-what-is-answered-in-a-key-world", "settled-stays", "law/key/law.go",
		`	Done: {
		Forgotten: Released,`, `	Done: {
		Happened:  Done,
		Forgotten: Released,`, "./idempotency -run TestKeyWorlds$ -kind people -seeds 1000"},
	{"proxy-half-an-answer-is-whole-in-a-key-world", "settled-stays", "idempotency/execute.go",
		`if c.mayBeCut(a) {`, `if false {`, "./idempotency -run TestKeyWorlds$ -kind proxy"},
	{"proxy-cut-answer-is-none-in-a-key-world", "doubt-is-not-failure", "idempotency/proxy/upstream.go",
		`		idempotency.Doubt(w.ctx, statusOf(w.ctx))`, ``, "./idempotency -run TestKeyWorlds$ -kind proxy"},
	{"proxy-keeps-no-trailer-in-a-key-world", "settled-stays", "idempotency/answer.go",
		`append(fields, a.trailers()...), func`, `fields, func`, "./idempotency -run TestKeyWorlds$ -kind proxy"},
	{"proxy-broken-connection-sent-nothing-in-a-key-world", "doubt-is-not-failure", "idempotency/proxy/upstream.go",
		`GotConn: func(httptrace.GotConnInfo) { c.sent.Store(true) },`, ``, "./idempotency -run TestKeyWorlds$ -kind proxy"},
}
