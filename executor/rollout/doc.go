// Package rollout decides how a guarded rollout goes on: a split moves from one backend to another
// in steps, holds while it is not known whether the new one is worse, and rolls back when it is. It
// makes decisions from counts. It has no clock, no I/O and no goroutines.
//
// # What is compared
//
// The unit is the subject. A subject that arrives in a step is observed for a fixed time, in which
// all its sessions are judged together: they make one [Observation], however many they are, because
// the sessions of one subject are not independent. Observations of both arms that arrived in the
// same step and at about the same time are paired, one of the smaller arm with the mean of several
// of the larger one. Each [Guard] turns a pair into a number from -1 to 1: how much worse the new
// arm was.
//
// # When it is decided
//
// Each guard makes two bets on each pair, whose stakes do not depend on the pair: one wins if the
// new arm is worse than the guard allows, the other if it is not. If the hypothesis that a bet is
// made against is true, its wealth is a nonnegative supermartingale that begins at 1, and the
// probability that it ever reaches 1/a is at most a (Ville's inequality). So the wealth may be
// looked at after every pair, for ever, without more false alarms. The method is that of
// Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", J. R. Stat.
// Soc. B 86 (2024). It needs no assumption about the distribution and holds for every number of
// pairs.
//
// [Plan.Alpha] bounds the probability that an arm that is no worse than the guards allow is rolled
// back by any guard, in any step, at any look.
package rollout
