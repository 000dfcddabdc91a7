// Package svpview adapts a change log and its state to package varp, and exports an SVP
// server's counts as metrics. Servers and agents use it.
package svpview
