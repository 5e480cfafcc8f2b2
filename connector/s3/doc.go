// Package s3 puts objects into a bucket and reads them, on Amazon S3 or anything that
// speaks its protocol. In keep.toml it is connector = "s3".
//
//	[connections.store]
//	connector  = "s3"
//	base_url   = "https://s3.example.com"   # leave it out for Amazon
//	bucket     = "invoices"
//	region     = "eu-central-1"
//	access_key = "${secret:s3_access}"
//	secret_key = "${secret:s3_secret}"
//
// # How a change is made once
//
// put sends If-None-Match: *, so that the service makes the object only if there is none
// of that key, and it writes the host's key for the call into the object's metadata as
// keep-id. Sent again, it is refused with 412, and the object itself says whose it is:
// ours has happened, and another one is a logic failure with code "exists". With
// overwrite = ETAG it sends If-Match, so that it replaces that version and no other.
// That is level C: an object that is not there may have been taken away since. The service must honour both headers, as
// Amazon does for all buckets.
//
// delete is level C: an object that is gone was deleted, by whomever; one that is there,
// and was put a minute or more before the call was recorded, was not. One that was put later, by the clock of the service,
// proves nothing, so a person is asked: another delete would take what somebody put meanwhile. What shows it must speak
// for S3: asked for an object that nobody has, it refuses that in the words of S3.
// With etag the service deletes that version only, and of the same bytes put again the etag is the same.
//
// A missing object is believed only if the service says so with the code NoSuchKey, and names no other key: a
// wrong bucket and a gateway without its service answer 404, too.
package s3
