/** The worker's entry under the name and in the place that the documented API gives it; ../worker holds the same. */

import { enableBridgeWorkerHost } from './bridge/worker_host.js';

enableBridgeWorkerHost();
