// Package serve runs a server: the store, its API, the surfaces of Triton's programs,
// the SVP server, TLS, and what follows the log's grants and authorities.
//
// Open makes a server from Options, with its files and ports open, and starts
// nothing; Run serves until its context ends. The command rutter server, rutter dev
// and the tests make their servers here.
package serve
