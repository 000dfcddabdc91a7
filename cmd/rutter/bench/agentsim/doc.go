// Package agentsim simulates many compute nodes in one process: the real
// protocol over real sockets, no kernel and no cache on disk. It drives fan-out,
// storms of reconnects and barriers, and measures how late entries arrive.
//
// An agent here reads frames without decoding what is in them, but for bookmarks
// and scopes: it keeps a cursor and which scopes it holds, answers each bookmark
// with a watermark that says that its kernel is there, and comes back from its
// cursor when a connection ends, to the next server, with the backoff of a real
// agent. What a real agent's decoding and disk cost is not in its numbers.
//
// Concurrency: a Fleet's methods may be called from any goroutine; Run blocks
// until all agents have ended.
package agentsim
