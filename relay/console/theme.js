// Before the page is drawn, so that it does not flash: a theme that was chosen wins over the system's.
"use strict";
{
	const chosen = localStorage.getItem("theme");
	if (chosen === "light" || chosen === "dark")
		document.documentElement.dataset.theme = chosen;
}
