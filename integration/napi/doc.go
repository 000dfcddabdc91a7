// Package napi runs servers as processes, and asks them as NAPI's old clients do:
// that know no leaders, follow no redirect and keep their connections.
//
// It owns the tests of NAPI's surface that need more than one server; forms and
// words are tested where they are made, in package api/triton/napi.
package napi
