// Package replayinto repeats the changes of one log in another, running cluster, which
// decides each of them anew.
//
// It owns which operations have the effect of an event (ops.go), the map file, which says
// which change of the target stands for which of the source (mapping.go), and the ids of
// the changes (ids.go). Package bulkwrite writes them.
//
// A replay may be killed at any time and started again: it makes nothing twice, and leaves
// nothing out. Three things together see to that.
//
//   - The random part of a change's id follows from its place in the source. So the log of
//     the target says which changes it has.
//   - The rest of the id, the time, is that of an era of some thousand changes, which stands
//     in a file beside the map before the first of them is sent. So a change that was under
//     way when a replay was killed is sent again with the same id, and servers make it once.
//   - The same file has a seq of the target after which all is that the map may lack. Only
//     the log from there on is read again. The map is on disk before that seq is written.
//
// Mappings are written in the order of the source.
//
// Concurrency: a replay belongs to one goroutine. Those of bulkwrite and of the write
// stream end before Run returns.
package replayinto
