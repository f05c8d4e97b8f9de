// Package ledger counts what accounts have and use, once for all processes that share a
// [sessions.Store]: sessions, runs in progress, runs in the last minute, and amounts of runs, time
// and money in an hour, a day and a month.
//
// What a run or a session may come to is reserved before it begins and settled when it has ended. A
// reservation is granted by one atomic write that fails if another process has written meanwhile.
// So the reservations of all processes together never exceed a limit. Calls about the same account
// that arrive while a write is in progress are granted together by the next one.
//
// An account is one entry of the store. Each process has a share of it, which only this process
// writes as long as it lives: its numbers, not their changes, so that a write whose answer was lost
// can be repeated. If a process dies, another one takes its share out: what was reserved counts as
// spent.
//
// Without a store the ledger counts in memory, by the same rules.
package ledger
