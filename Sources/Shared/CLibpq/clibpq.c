#include "CLibpq.h"
