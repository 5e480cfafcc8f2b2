// Package store declares what a store does, one interface for each noun, with its
// contract. The packages below it are stores; package storetest checks that they keep
// the contract. Consumers compose the interfaces that they need:
//
//	type Store interface {
//		store.Committer
//		store.Runs
//	}
//
// These hold for every method. A read sees every commit that returned before it began;
// it may come from a snapshot, and never waits for a commit under way. What does not
// exist is a *keep.NotFoundError that names it. A list is a page, newest first, with
// the cursor of the next page, which is empty at the end; a cursor that the list did
// not make is keep.ErrBadCursor. Records of a workflow are in the order in which they
// were committed; of several workflows, those that were made within a millisecond may
// be in any order. A count has the same filter as its list and counts,
// by state, all that the list would return; a state that nothing has is not in the
// map. A filter's Text selects as package law/search says. A count of a text stops
// when it has counted search.MaxCount+1, which says that there are more. A count without a text does not cost more with more rows in the usual state,
// which are nearly all.
package store
