// Package napi runs servers as processes, and sends requests as NAPI's old clients do.
// These know no leader, follow no redirect and keep their connections.
//
// It owns the tests of NAPI's surface that need more than one server. Package
// api/triton/napi tests forms and texts.
package napi
