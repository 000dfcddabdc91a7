// Package projections says what the change log means: State is the pure fold
// of its events, and answers for it.
//
// It owns Apply (an event becomes state), the indexes and lookups, VL2 and VL3
// among them, the interest of compute nodes (CNs), the digests of scopes, and Dump.
// How a change becomes events or a refusal is decided by package rules, on an
// Overlay of the state; what a CN's kernel must hold is said by package desired.
// Agreeing on changes and keeping them is left to package raftstore, carrying them
// to package api and package agent.
//
// The package is pure: no clock, randomness, goroutine, file, socket or logger,
// and no iteration over a map in an order that could be seen. Two states that
// were fed the same give the same bytes.
//
// Concurrency: a State has no lock. One writer (Apply, Load, Drop, SetTime) at a
// time and no reader beside it; everything else only
// reads, and readers may run side by side.
//
// DESIGN.md in this folder lists the rules of validation that depart from
// NAPI's, with their reasons.
package projections
