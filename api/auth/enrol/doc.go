// Package enrol issues certificates to compute nodes. It also serves what operators see
// and change of the cluster's trust: tokens, revocations, authorities.
//
// A node's first certificate costs a token. The log lets only one key redeem it, once,
// on any server. For each later certificate the node shows the one before. Claims in a
// certificate request are ignored: the identity follows from the token, or from the
// connection.
//
// The package owns those endpoints with their table, and the periodic work on what the
// log has of trust. It leaves to others the connections and files (tlsgate), the
// formats (pki), and the decision in the log's order (projections). It calls the rest
// of the server only through its Config.
//
// New starts nothing; Run blocks. All methods may be called concurrently.
package enrol
