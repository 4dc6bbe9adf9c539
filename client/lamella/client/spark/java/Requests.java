package lamella;

import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What Spark asks a catalog for, as text. */
public final class Requests {
    /** Returns the parts of the name of a table, each followed by U+0000. */
    public String name(Identifier identifier) {
        StringBuilder out = new StringBuilder();
        String[] namespace = identifier.namespace();
        for (int at = 0; at < namespace.length; at++) {
            out.append(namespace[at]).append('\u0000');
        }
        return out.append(identifier.name()).append('\u0000').toString();
    }

    /**
     * Returns the same, and at the end "now" if the table is loaded to read it as it is now, without options. context:
     * what Spark passes with the name.
     */
    public String load(Identifier identifier, Object context, Object options) throws Exception {
        return name(identifier) + (isPlainRead(context, options) ? "now" : "");
    }

    /** Returns the same as name, and at the end "command" if a command such as ALTER TABLE or DESCRIBE loads the table. */
    public String relation(Identifier identifier) {
        return name(identifier) + (Threads.isCalledFrom("lookupTableOrView") ? "command" : "");
    }

    private static boolean isPlainRead(Object context, Object options) throws Exception {
        if (options != null && !(options instanceof Map && ((Map) options).isEmpty())) {
            return false;
        }
        if (context == null) {
            return true;
        }
        // By name, since not every version of Spark has the class.
        Class type = context.getClass();
        if (!type.getSimpleName().equals("TableContext")) {
            return false;
        }
        Class[] none = new Class[0];
        Optional travel = (Optional) type.getMethod("timeTravel", none).invoke(context, new Object[0]);
        Set privileges = (Set) type.getMethod("writePrivileges", none).invoke(context, new Object[0]);
        return !travel.isPresent() && privileges.isEmpty();
    }

    /** Returns the text of options. */
    public String text(CaseInsensitiveStringMap options) {
        return options.asCaseSensitiveMap().toString();
    }
}
