// Package presence proves to a process that another one of the same machine has ended,
// so that its leases need not be waited for.
//
// Each host locks a file of its own (flock) in a directory of the machine, and keeps the
// lock for as long as the process exists: the kernel gives it back when the process has
// ended, however it did, and not before. Who can take the lock knows that the process is
// gone, and that nothing of it can send any more. It then gives the leases of that host
// back, as the host itself would have, and claims them like any other host, under a new
// epoch.
//
// What is no proof, and leads to waiting until the leases end:
//
//   - a lock that cannot be taken: the process lives, or was stopped (SIGSTOP), or is ending;
//   - a file that says of itself another device, inode or boot of the kernel than it has:
//     a copied or restored directory, another machine, another kernel below one disk;
//   - a directory on a file system that other machines may have, or where flock may not hold
//     between all processes (NFS, SMB, FUSE, 9p): only file systems that are known are used;
//   - a directory that belongs to somebody else, or that others may write to;
//   - another system than Linux.
//
// A virtual machine that is cloned while it runs has the same boot twice. The clone's
// processes are refused by their epochs, as those of any late host are; do not let a clone
// of a running host continue with its database.
package presence
