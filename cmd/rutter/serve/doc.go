// Package serve runs a server: the store, its API, the surfaces of Triton's programs,
// the SVP server, TLS, and the followers of the log's grants and authorities.
//
// Open makes a server from Options, with its files and ports open, and starts nothing;
// Run serves until its context ends. The command rutter server, rutter dev and the
// tests make their servers by it.
package serve
