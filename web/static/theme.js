// Runs before the page is drawn: the theme that was chosen, and that there is
// JavaScript.
(function () {
	"use strict";
	var root = document.documentElement;
	root.classList.add("js");
	try {
		var theme = localStorage.getItem("theme");
		if (theme === "dark" || theme === "light") root.dataset.theme = theme;
	} catch (e) {
		// no storage: the system decides
	}
})();
