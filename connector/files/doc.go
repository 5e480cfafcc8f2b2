// Package files makes one directory a service: scripts list, read, write and
// append to the files below it, and read mails that something else drops there.
// In keep.toml it is connector = "files".
//
//	[connections.inbox]
//	connector = "files"
//	root      = "/var/mail/inbox"
//	read_only = true
//
// Nothing outside the root can be reached, through symbolic links neither.
// Names that start with a dot are hidden: they can't be listed, read or
// written. A list that would have a name that is not UTF-8 is a logic failure, and one that needs a directory which cannot be read
// is a permission failure. A constructor touches no file; a root that is missing is a
// precondition failure of the call that needs it.
//
// # How a change is made once
//
// Both mutate tools are level A and their lookups are exact, under kill -9 and
// loss of power at any moment. The connector keeps a directory .keep in the
// root, locked against other processes while a change is made.
//
// write puts the content into a temporary file beside the target, whose name is
// made of the token; makes it durable; makes a mark for the token durable; and
// renames. Then
//
//	no mark               it didn't happen
//	mark and temporary    it didn't happen
//	mark, no temporary    it happened, whatever became of the file since
//
// A rename that is answered with an error and was made all the same, as over a network, counts as made.
//
// append makes a file that is missing, empty; makes a durable note of token, old size and text for the file;
// appends; makes a mark for the token durable; and removes the note. Whoever next
// appends to the file or writes it, under whichever of its names that links make, or asks about it, settles a note that is left over:
//
//	the file has its old size       it didn't happen
//	the text follows                it happened
//	a part of the text follows      the rest is appended; it happened
//	anything else                   a foreign program wrote into the file in
//	                                between, or took it away; nobody can know,
//	                                a person decides
//
// The last line is the only doubt. It needs a crash or an error of the file system, and a foreign program that changes the file before
// somebody asks. Programs that hold the file open see appended text,
// but not a written file: that one is a new file.
//
// Marks are kept for 30 days, the newest 10,000 for longer; of more than 100,000
// the oldest are removed. A question about a change that is older than a mark which
// was removed is answered by a person: no mark means nothing then. So is one about a change that was recorded before the directory
// .keep was there: who removes it, or mounts another volume there, takes the marks away.
package files
