// Package trust has certificates' keepers follow what the log says of trust: which
// authorities count, and which certificates are revoked. Servers and agents run it.
package trust
