// What every page needs.
import { installCopyButtons } from "./copy.js";
import { installTableButtons } from "./csv.js";
import { installForms } from "./forms.js";
import { installKeys } from "./keys.js";
import { installLive } from "./live.js";
import { installPanel } from "./panel.js";
import { installPaper } from "./paper.js";
import { awaitParts } from "./pending.js";
import { installScrollBoxes } from "./scroll_boxes.js";
import { installThemeSwitch } from "./theme.js";

installThemeSwitch();
installPanel();
installCopyButtons();
installTableButtons();
installForms();
installKeys();
installLive();
installScrollBoxes();
installPaper();
awaitParts();
