// Package storetest says what every store must do. Each store's test calls Run;
// each subtest is a promise in words, so that an implementer reads a failure as
// a sentence:
//
//	--- FAIL: TestStore/a_second_open_run_of_a_workflow_is_refused
//
// The state that a subtest leaves must be lawful: Check runs at its end. A commit
// that must be refused is always refused after an early change that was fine, and
// the whole readable state is compared before and after.
//
// Compare puts random commits to two stores and expects the same answers and the
// same state. The memory store shares no code with the others, so it is what
// they are compared with.
//
// Nothing here is about one database: a store that keeps the promises in another
// way passes.
package storetest
