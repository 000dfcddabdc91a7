// Package trust makes the keepers of certificates follow the log: which authorities are
// trusted, and which certificates are revoked. Servers and agents run it.
package trust
