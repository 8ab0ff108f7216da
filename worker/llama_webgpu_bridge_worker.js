/** The worker's entry: boots the engine when the page says `init` and lets it answer everything else. */

import { enableBridgeWorkerHost } from '../web/bridge/worker_host.js';

enableBridgeWorkerHost();
