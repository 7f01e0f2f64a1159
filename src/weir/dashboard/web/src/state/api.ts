// The API as a page was made with it: a form or a row asks for what it shows, even if the address has changed since.

import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { Api } from "../api/http";

export const ApiContext = createContext(new Api(null, null));

/** Ask again what the token may see, after it was changed. */
export const RenewMe = createContext(() => {});

export function useApi(): Api {
  return useContext(ApiContext);
}
