// Package replicas tests servers without a vote, and zones: five servers as processes, two
// of them replicas, one of these behind a proxy that delays what the others send it, with
// simulated compute nodes that move between them.
//
// Concurrency: a delay's methods may be called from any goroutine.
package replicas
