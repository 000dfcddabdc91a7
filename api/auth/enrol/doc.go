// Package enrol gives certificates to compute nodes, and is where operators see
// and change whom the cluster trusts: tokens, revocations, authorities.
//
// A node's first certificate costs a token, which the log lets one key redeem
// once, whichever server is asked. The next ones cost the one before. What a
// request for a certificate says of itself is left aside: who gets what follows
// from the token, or from the connection's identity.
//
// The package owns those endpoints and their table, and the upkeep of what the
// log has of trust. It leaves to others the connections and files (tlsgate), the
// formats (pki), and the decision in the log's order (projections). Where it is
// asked, it asks in its turn only its Config.
//
// New starts nothing; Run blocks. All methods may be called concurrently.
package enrol
