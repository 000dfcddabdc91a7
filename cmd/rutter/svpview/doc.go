// Package svpview shows a change log and its state as package varp wants them, and
// an SVP server's counts as metrics, for servers and agents alike.
package svpview
