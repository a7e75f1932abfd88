// Package txtest holds tests only: the server half's Transaction mode on the
// databases that it is made for. What one store does in its transactions, the
// store's own tests hold; here an effect in a table of the application and the
// record of its key must never part.
package txtest
