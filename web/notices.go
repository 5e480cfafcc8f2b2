package web

// notices are what an action did, by the words that a link may carry. There is
// nothing of a request in them.
var notices = map[string]string{
	"skipped":           "Skipped.",
	"not-skipped":       "It is not skipped any more.",
	"redone":            "It is pending again, as a new attempt.",
	"unskipped":         "The skip is undone.",
	"some-unskipped":    "The skip is undone in part: some events stay skipped, since a call for them was in doubt or their payloads were deleted.",
	"run-cancel":        "The run is cancelled, and its events are skipped.",
	"run-retry":         "The run continues now.",
	"item-unskipped":    "The skip is undone: the job handles the item again, in the same attempt.",
	"too-late":          "Part of it was too late to skip: its run is past its call, and completes.",
	"decided":           "Your decision is recorded.",
	"paused":            "The workflow is paused. A call that is under way finishes and is recorded.",
	"resumed":           "The workflow runs again. A run with an unknown outcome stays blocked until a person decides.",
	"checkpoint-set":    "The value is changed: the producer begins there at its next run.",
	"deployed":          "Deployed: this version runs now. A run that failed because of its script is tried again with it. Your files stay as they are: see the page for deploying.",
	"same-script":       "Nothing was changed: what runs is the version in force. Comments and spaces alone make no new one.",
	"waits":             "Stored: the version waits in Inbox until a person agrees, and the one in force continues.",
	"reset":             "The checkpoint is empty: the producer begins anew at its next run.",
	"triggered":         "Asked to run; the host does it as soon as the workflow is free.",
	"reprocess":         "The item starts over as a new attempt, the next time that its job comes to it.",
	"item-skipped":      "The item is passed over from now on.",
	"resolved":          "Recorded: retries with this key get the answer.",
	"revoked":           "Revoked: it is not accepted any more.",
	"account-works":     "The service accepts the account.",
	"account-connected": "Connected. What waited for the account continues.",
	"account-renewed":   "The account has new tokens.",
	"account-revoked":   "Revoked: the service was told, and nothing of the account is kept here.",
	"released":          "The key is free: the next request with it is executed.",
}
