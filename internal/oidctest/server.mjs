// A real OAuth server for tests. It prints its issuer when it listens.
import http from 'node:http'
import { Provider } from 'oidc-provider'

const options = JSON.parse(process.argv[2])
const server = http.createServer()
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`
  const person = ['authorization_code', 'refresh_token']
  const device = 'urn:ietf:params:oauth:grant-type:device_code'
  const native = { application_type: 'native', redirect_uris: ['http://127.0.0.1/callback'], response_types: ['code'] }
  const provider = new Provider(issuer, {
    clients: [
      { ...native, client_id: 'public', token_endpoint_auth_method: 'none', grant_types: [...person, device] },
      { ...native, client_id: 'posting', client_secret: options.secret, token_endpoint_auth_method: 'client_secret_post', grant_types: person },
      { ...native, client_id: 'basic', client_secret: options.secret, token_endpoint_auth_method: 'client_secret_basic', grant_types: person },
      { client_id: 'machine', client_secret: options.secret, token_endpoint_auth_method: 'client_secret_basic', redirect_uris: [], response_types: [], grant_types: ['client_credentials'] },
    ],
    features: {
      clientCredentials: { enabled: true }, deviceFlow: { enabled: true }, devInteractions: { enabled: true }, revocation: { enabled: true },
      ...(options.resources && {
        registration: { enabled: true },
        resourceIndicators: { enabled: true, getResourceServerInfo: (ctx, resource) => ({ scope: 'notes.write notes.admin', audience: resource, accessTokenFormat: 'jwt' }) },
      }),
    },
    scopes: ['openid', 'offline_access', 'mail.read', 'mail.send'],
    claims: { openid: ['sub', 'email'] },
    conformIdTokenClaims: false,
    rotateRefreshToken: options.rotate,
    ttl: { AccessToken: 3600, ClientCredentials: 600, DeviceCode: 600, Grant: 86400, Interaction: 600, RefreshToken: 86400, Session: 86400 },
    cookies: { keys: ['of-a-test'] },
    findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id, email: `${id}@example.com` }) }),
  })
  server.on('request', provider.callback())
  console.log(issuer)
})
process.stdin.on('end', () => process.exit()).resume() // the test ended
