// Package performance measures how much execbroker costs beyond what is under it, and writes the
// page that says so.
//
//	go run ./internal/ci performance            every comparison; renews docs/performance.md
//	go run ./internal/ci performance docker     those of one package only, without the page
//	go run ./internal/ci performance -page      the page only; marks the lines whose claim has changed
//
// The table in claims.go says what is compared, by which benchmark, and what is wanted. A
// benchmark measures both sides in one run, by turns where it can, so that what else the machine
// does is in both. Figures of two runs are never compared.
package performance
