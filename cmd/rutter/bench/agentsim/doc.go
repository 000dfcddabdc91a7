// Package agentsim simulates many compute nodes in one process: the real
// protocol over real sockets, no kernel and no cache on disk. It drives fan-out,
// storms of reconnects and barriers, and measures how late entries arrive.
//
// An agent here decodes only bookmarks and scopes. It keeps a cursor and the scopes
// that it holds, and answers each bookmark with a watermark that reports the same seq
// as programmed. When a connection ends it continues from its cursor at the next
// server, with the backoff of a real agent. The numbers do not include what decoding
// and disk cost a real agent.
//
// Concurrency: a Fleet's methods may be called from any goroutine; Run blocks
// until all agents have ended.
package agentsim
