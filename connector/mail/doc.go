// Package mail sends mails by SMTP and reads mailboxes by IMAP. In keep.toml it is
// connector = "mail".
//
//	[connections.mail]
//	connector = "mail"
//	smtp      = "smtps://smtp.example.com:465"   # or smtp://host:587, with STARTTLS
//	imap      = "imaps://imap.example.com:993"   # or imap://host:143, with STARTTLS
//	user      = "ann@example.com"
//	password  = "${secret:mail}"                 # or account = "NAME" of keep connect
//	from      = "Ann <ann@example.com>"
//	sent      = "Sent"
//
// A connection is encrypted, and a certificate is checked, unless tls = "none" says
// otherwise, which is only allowed for addresses of the loopback.
//
// # How a change is made once
//
// SMTP has no keys: a client that gets no answer to the end of a mail cannot know
// whether the server took it, and RFC 1047 tells of the duplicates that follow. So
// each mail has a Message-ID that the host chose before, and after a doubt the tool
// looks for it:
//
//	sent = "Sent"        the server files what it takes there    level C
//	copy_to_self = true  a blind copy goes to from, into INBOX    level C
//	neither              nobody can know                          level D
//
// Everything before the final dot is definite, since a server must not deliver a mail
// that has no end (RFC 5321, 4.1.1.4); so is a refusal. One recipient that is refused
// refuses the mail: nothing is sent to the others. No answer after the dot, or 421, is
// unknown. The connector never sends again by itself.
//
// A mail that is found was sent. A mail that is not found may still be on its way
// through the server's queue, or was moved by a person, so it is looked for until the
// attempts of policy.reconcile are over, and then a person is asked. With settle_after
// a mail that is not found by then counts as not sent, if another mail of the same
// tool is found at the same moment.
//
//	append  level C: looked for by its Message-ID in the folder
//	move    level C: a mail that still has its id was not moved; one that has not, and
//	        is in the folder under the message_id that was passed, was
//	flag    level A: to set a flag twice is to set it once
//
// # Ids
//
// The id of a mail is FOLDER;UIDVALIDITY;UID. When a server has numbered a folder anew,
// ids from before are gone (precondition): they never name another mail.
//
// There is one connection to the mailbox for reads, which is kept for some seconds, one
// for each change and each question, and one that waits for new mails (IDLE), as long as
// a producer that searches the mailbox at an interval wants to know of them.
package mail
