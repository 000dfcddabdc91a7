// Package faults is a search for lost, doubled and reordered changes, and for stale
// reads: three real servers on a network of their own, clients that write and read, and
// faults by a schedule that a seed determines: killed and paused servers, links cut in
// one direction or both, transfers of leadership, and slow disks.
//
// Each schedule's history is checked three ways: linearizability of each register
// (porcupine), the whole log of every server against what clients saw (each answer
// names its seq), and a least rate, so that a run in which nothing happens does not
// pass.
//
// RUTTER_SEED=N runs the one schedule of that seed; RUTTER_LONG=1 runs 100
// instead of a dozen; RUTTER_SCHEDULES=N runs so many. Where a user may not make
// namespaces the tests skip.
//
// It owns no production code. bugs_test.go lists the bugs of peers
// (docs/peers.md section 1) with the tests of this repository that look for them.
package faults
