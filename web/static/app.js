// Times in the reader's zone, the theme, the keyboard and the palette. Every page
// works without this file; htmx and its SSE extension do the live updates.
(function () {
	"use strict";
	var root = document.documentElement;
	var $ = function (selector) { return document.querySelector(selector); };
	var all = function (selector) { return Array.prototype.slice.call(document.querySelectorAll(selector)); };

	// On a narrow screen the place in the navigation may be out of sight.
	var current = $(".top nav [aria-current]");
	if (current) current.parentNode.scrollLeft = current.offsetLeft - current.parentNode.offsetLeft - 40;

	// Times.

	var exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
	var clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
	var minutes = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
	var units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
	var words = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });

	function relative(then, now) {
		var seconds = Math.round((then - now) / 1000);
		if (Math.abs(seconds) < 5) return "now";
		for (var i = 0; i < units.length; i++) {
			if (Math.abs(seconds) >= units[i][1] || i === units.length - 1) {
				return words.format(Math.trunc(seconds / units[i][1]), units[i][0]);
			}
		}
	}

	function localize() {
		var now = Date.now();
		all("time[datetime]").forEach(function (t) {
			var then = new Date(t.getAttribute("datetime"));
			if (isNaN(then)) return;
			var today = then.toDateString() === new Date(now).toDateString();
			var text = (today ? clock : exact).format(then);
			if (t.classList.contains("ago") && Math.abs(then - now) < 7 * 86400000) text = relative(then, now);
			if (t.textContent !== text) t.textContent = text;
		});
		all("text[data-clock]").forEach(function (t) {
			var text = minutes.format(new Date(t.getAttribute("data-clock")));
			if (t.textContent !== text) t.textContent = text;
		});
		all("text[data-time]").forEach(function (t) {
			var text = clock.format(new Date(t.getAttribute("data-time")));
			if (t.textContent !== text) t.textContent = text;
		});
	}

	// The theme.

	function toggleTheme() {
		var dark = root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
		root.dataset.theme = dark === "dark" ? "light" : "dark";
		try { localStorage.setItem("theme", root.dataset.theme); } catch (e) { /* lasts as long as the page */ }
	}

	// Rows: j and k move, Enter opens, digits act. A digit is for the row that was chosen by j or k, or
	// that the focus is in, and for no other: it may be one of a text whose field is gone.

	function rows() { return all("[data-row]").filter(function (r) { return r.offsetParent !== null; }); }

	function move(by) {
		var list = rows();
		if (!list.length) return;
		var at = list.findIndex(function (r) { return r.classList.contains("here"); });
		var to = at < 0 ? (by > 0 ? 0 : list.length - 1) : Math.max(0, Math.min(list.length - 1, at + by));
		choose(list[to]);
		list[to].scrollIntoView({ block: "nearest" });
		var link = list[to].querySelector("a");
		if (link) link.focus({ preventScroll: true });
	}

	function choose(row) {
		all("[data-row].here").forEach(function (r) { r.classList.remove("here"); });
		if (row) row.classList.add("here");
	}

	function here() { return $("[data-row].here") || $("[data-row]:focus-within"); }

	function act(n) {
		var row = here(), button = row && row.querySelector('[data-act="' + n + '"]');
		if (button) button.click();
	}

	function isField(e) { return /^(INPUT|TEXTAREA|SELECT)$/.test(e.tagName); }

	document.addEventListener("focusin", function (e) { if (isField(e.target)) choose(null); });

	// The palette and the help.

	function open(dialog) {
		if (!dialog || dialog.open) return;
		dialog.showModal();
		var input = dialog.querySelector("input");
		if (input) { input.value = ""; filter(input); input.focus(); }
	}

	function filter(input) {
		var wanted = input.value.trim().toLowerCase().split(/\s+/);
		var first = true;
		all("#palette li").forEach(function (li) {
			var text = li.textContent.toLowerCase();
			var ok = li.hasAttribute("data-search") || wanted.every(function (w) { return text.indexOf(w) >= 0; });
			li.hidden = !ok || (li.hasAttribute("data-search") && !input.value.trim());
			li.classList.toggle("here", !li.hidden && first);
			if (!li.hidden) first = false;
			if (li.hasAttribute("data-search")) li.querySelector("a").href = li.getAttribute("data-search") + encodeURIComponent(input.value.trim());
		});
	}

	function paletteKey(e) {
		var list = all("#palette li").filter(function (li) { return !li.hidden; });
		var at = list.findIndex(function (li) { return li.classList.contains("here"); });
		if (e.key === "ArrowDown" || e.key === "ArrowUp") {
			e.preventDefault();
			var to = Math.max(0, Math.min(list.length - 1, at + (e.key === "ArrowDown" ? 1 : -1)));
			list.forEach(function (li, i) { li.classList.toggle("here", i === to); });
			if (list[to]) list[to].scrollIntoView({ block: "nearest" });
		} else if (e.key === "Enter" && list[at]) {
			e.preventDefault();
			list[at].querySelector("a").click();
		}
	}

	document.addEventListener("keydown", function (e) {
		if ((e.ctrlKey || e.metaKey) && !e.altKey && e.key.toLowerCase() === "k") {
			e.preventDefault();
			open($("#palette"));
			return;
		}
		if (e.target.id === "palette-q") { paletteKey(e); return; }
		var typing = isField(e.target);
		if (typing && e.key === "Escape") {
			e.target.blur();
			choose(e.target.closest("[data-row]"));
			return;
		}
		if (typing || e.ctrlKey || e.metaKey || e.altKey || $("dialog[open]")) return;
		if (e.key === "j") move(1);
		else if (e.key === "k") move(-1);
		else if (e.key === "/") {
			var q = $("input[type=search]");
			if (!q) { location.href = "/inputs"; return; }
			e.preventDefault();
			q.focus();
			q.select();
		} else if (e.key === "?") open($("#help"));
		else if (e.key === "Enter") {
			var row = here();
			if (!row || e.target !== document.body) return;
			var link = row.querySelector("a");
			if (link) link.click();
		} else if (/^[1-9]$/.test(e.key)) act(e.key);
	});

	document.addEventListener("input", function (e) {
		if (e.target.id === "palette-q") filter(e.target);
	});

	document.addEventListener("click", function (e) {
		var button = e.target.closest("[data-do]");
		if (!button) {
			if (e.target.tagName === "DIALOG") e.target.close();
			return;
		}
		var what = button.dataset.do;
		if (what === "theme") toggleTheme();
		else if (what === "close") button.closest("dialog").close();
		else open($("#" + what));
	});

	// A filter is sent when it is chosen; its button is for those without this.
	document.addEventListener("change", function (e) {
		if (e.target.matches("form.filters select")) e.target.form.requestSubmit();
	});

	// Twice sent is once meant: the second click of a button does nothing.
	document.addEventListener("submit", function (e) {
		if (e.target.method !== "post") return;
		if (e.target.dataset.sent || e.target.closest("[data-held]")) { e.preventDefault(); return; }
		e.target.dataset.sent = "1";
		// What is answered with a file leaves the page here, to be pressed again.
		if (e.target.hasAttribute("data-file")) setTimeout(function () { delete e.target.dataset.sent; }, 2000);
		keepTexts(e.target);
	});

	// The texts of a form that is sent, for the case that the session has ended: whoever logs in then comes back
	// to them. Nothing is kept of a form with a secret.
	function fields(form) {
		if (form.querySelector("input[type=password]")) return [];
		return Array.prototype.filter.call(form.elements, function (f) { return f.name && /^(text|textarea)$/.test(f.type); });
	}
	function typed() {
		return all("form[method=post]").some(function (form) {
			return Array.prototype.some.call(form.elements, function (f) { return /^(text|textarea|password)$/.test(f.type) && f.value !== f.defaultValue; });
		});
	}
	function keepTexts(form) {
		var texts = fields(form).map(function (f) { return [f.name, f.value]; });
		try { sessionStorage.setItem("typed", JSON.stringify({ to: form.getAttribute("action"), texts: texts })); } catch (e) { /* too long, or no storage */ }
	}
	function putTexts() {
		var kept = null;
		try {
			kept = JSON.parse(sessionStorage.getItem("typed"));
			sessionStorage.removeItem("typed");
		} catch (e) { /* no storage */ }
		if (location.hash !== "#typed") return;
		history.replaceState(history.state, "", location.pathname + location.search);
		if (!kept) return;
		var form = all("form[method=post]").find(function (f) { return f.getAttribute("action") === kept.to; });
		kept.texts.forEach(function (t) {
			var field = form && fields(form).find(function (f) { return f.name === t[0]; });
			if (field) field.value = t[1];
			else if (t[1]) {
				var line = document.createElement("p");
				line.className = "notice";
				line.textContent = "Not sent, and its form is not here any more: “" + t[1] + "”";
				$("#main").insertBefore(line, $("#page"));
			}
		});
	}
	putTexts();
	window.addEventListener("pageshow", function () {
		all("form[data-sent]").forEach(function (f) { delete f.dataset.sent; });
	});

	// Live updates.

	var kept = null; // the row at the cursor
	var at = null; // the pointer
	var spot = null; // what a person is at, and how far down it is

	// What can be done, for a comparison: where it is sent, with what, by which buttons.
	function doing(node) {
		return (node.matches("form") ? [node] : Array.prototype.slice.call(node.querySelectorAll("form[method=post]"))).map(function (f) {
			return [f.getAttribute("action")].concat(Array.prototype.map.call(f.querySelectorAll("input[type=hidden]:not([hx-morph-skip]), button"), function (e) {
				return e.name + "=" + e.value + " " + e.textContent;
			})).join("\n");
		}).join("\n\n");
	}

	// A form stays what it was when a person began to read it: if something else can be done now, it is
	// kept with what was written, and sends nothing any more.
	function hold(old, now) {
		if (!old.matches("[data-hold], form[method=post]")) return true;
		if (old.hasAttribute("data-held")) return false;
		var was = doing(old);
		if (!was || was === doing(now)) return true;
		old.setAttribute("data-held", "");
		old.querySelectorAll("button").forEach(function (b) { b.disabled = true; });
		var line = document.createElement("p"), link = document.createElement("a");
		line.className = "sub";
		line.setAttribute("role", "status");
		line.textContent = "It changed meanwhile, and nothing can be sent from here any more; what you wrote is kept. ";
		link.href = location.pathname + location.search;
		link.textContent = "Show what can be done now";
		line.appendChild(link);
		old.appendChild(line);
		return false;
	}
	if (window.htmx) htmx.registerExtension("hold", { htmx_before_morph_node: function (old, detail) { return hold(old, detail.newNode); } });

	// What the pointer is over, or the cursor is in, stays where it is on the screen.
	["pointermove", "pointerdown"].forEach(function (name) {
		document.addEventListener(name, function (e) { at = [e.clientX, e.clientY]; }, { passive: true });
	});
	function place() {
		var under = at && document.elementFromPoint(at[0], at[1]);
		return under && under.closest("#page [id]") || document.activeElement.closest("#page [id]");
	}

	document.addEventListener("htmx:before:swap", function (e) {
		// What is no page is not put in place of one: the session may have ended.
		var response = e.detail.ctx && e.detail.ctx.response;
		if (response && (response.status >= 400 || response.raw.redirected)) {
			e.preventDefault();
			if (response.raw.redirected) ended();
			else if (ofPage(e)) missed("the server answers " + response.status, response.status >= 500 || response.status === 429);
			return;
		}
		if (ofPage(e) && stale) {
			stale = "";
			tell();
		}
		if ($("#ended")) $("#ended").hidden = true;
		var row = here(), still = place();
		kept = row && row.id;
		spot = still && { id: still.id, top: still.getBoundingClientRect().top };
	});
	document.addEventListener("htmx:before:settle", function () {
		var still = spot && document.getElementById(spot.id);
		var by = still ? still.getBoundingClientRect().top - spot.top : 0;
		if (by) window.scrollBy({ top: by, behavior: "instant" });
	});
	document.addEventListener("htmx:after:settle", function () {
		localize();
		var row = kept && document.getElementById(kept);
		if (row && row.hasAttribute("data-row") && !isField(document.activeElement)) row.classList.add("here");
	});
	document.addEventListener("htmx:error", function (e) { if (ofPage(e)) missed("the server cannot be reached", true); });
	document.addEventListener("htmx:sse:after:connection", function () {
		connected = true;
		tell();
	});
	document.addEventListener("htmx:sse:error", function (e) {
		connected = false;
		tell();
		if (e.detail.status === 401) ended();
	});

	// A page that could not be read again says so, and is read again soon, also if nothing else changes, where that may help.
	var connected = false, stale = "", again = null;
	function ofPage(e) {
		var ctx = e.detail && e.detail.ctx;
		return !!ctx && !!ctx.sourceElement && ctx.sourceElement.id === "page";
	}
	function missed(why, mayHelp) {
		stale = "not up to date: " + why;
		tell();
		clearTimeout(again);
		if (mayHelp) again = setTimeout(function () {
			var live = $("#live");
			if (live) live.dispatchEvent(new CustomEvent("keep-changed"));
		}, 2000);
	}
	function tell() { state(!connected ? "reconnecting…" : stale || "live"); }

	// A session that ended leads to the login, but not away from what was written.
	function ended() {
		if (!typed()) location.reload();
		else $("#ended").hidden = false;
	}

	function state(text) {
		var label = $("#live-state");
		if (label) label.textContent = text;
	}

	localize();
	setInterval(localize, 10000);
	if (location.search.indexOf("did=") >= 0) {
		var url = new URL(location.href);
		url.searchParams.delete("did");
		history.replaceState(history.state, "", url);
	}
	var auto = $("form[data-auto]");
	if (auto) setTimeout(function () { auto.requestSubmit(); }, 300);
})();
